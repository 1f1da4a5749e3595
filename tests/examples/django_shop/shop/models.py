"""What the shop sells."""

from django.db import models


class Order(models.Model):
    """An order.

    Attributes:
        email: Whose it is.
        receipts: How often a receipt was sent.
    """

    email = models.TextField()
    receipts = models.IntegerField(default=0)
