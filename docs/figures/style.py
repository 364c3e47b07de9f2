"""How the site's own figures look: no background, and colours that are readable on a white page and on a dark one."""

import matplotlib

# Contrast of at least 4 to 1 with white and with the dark theme's #131416; lines need 3 to 1.
INK = "#767676"
SOFT, BLUE, RED, GREEN, ORANGE = "#9a9a9a", "#2a6fb0", "#c23b3b", "#2f8f5b", "#d98324"

matplotlib.rcParams |= {
    "svg.hashsalt": "accord",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
