//! Composites: declared derived values over a window, readable at any instant.

/// A declared derived value.
#[derive(Debug)]
pub struct Composite {}
