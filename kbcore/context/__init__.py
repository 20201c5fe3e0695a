"""What matters: the salience of stored facts."""
