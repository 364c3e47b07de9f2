"""An accord algorithm as a Flower app: six owners of digits, some classes each."""
