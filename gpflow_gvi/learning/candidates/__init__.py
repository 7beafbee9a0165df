"""The candidates for the regulariser P: what is fitted, and the choice of what predicts best."""
