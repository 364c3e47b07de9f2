"""What the papers are about: local rules, averages, masks and servers, one file a rule, and the algorithms made of
them."""
