"""Methods whose images are made of public images or by a public generator; private records choose or label them."""
