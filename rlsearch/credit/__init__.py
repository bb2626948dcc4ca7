"""Rewards to advantages: operations over the node table and the estimators made of them."""
