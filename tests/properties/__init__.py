"""What has to hold of every fit of `learn`, whatever the rows: slow, `make properties`."""
