"""What a trained model gives away: `attack` asks whether it tells its training samples from others
(docs/explanation/privacy.md)."""

from accord.audit.membership import Membership, attack
from accord.audit.roc import Attack

__all__ = ["Attack", "Membership", "attack"]
