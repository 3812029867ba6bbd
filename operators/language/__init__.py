"""What a program says: types, expressions, collections and the logical plan that they build."""
