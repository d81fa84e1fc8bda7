"""What two parties compute on shares."""
