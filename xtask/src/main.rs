//! The project's habits as commands.
fn main() {}
