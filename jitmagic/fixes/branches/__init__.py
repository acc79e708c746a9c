"""Branches on traced values: both sides computed and chosen from, or compiled as branches."""
