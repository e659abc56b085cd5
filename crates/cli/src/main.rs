//! The `coptidice` program.
fn main() {}
