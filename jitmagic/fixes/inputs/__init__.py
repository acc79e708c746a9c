"""What a function reads, asks for or keeps by itself, as what it is given and gives back."""
