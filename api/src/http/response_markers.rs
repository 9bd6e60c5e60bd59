//! Markers in the extensions of a response, from a handler or an inner layer to an outer one.

/// Marks a response whose body is one copy for all.
#[derive(Clone, Copy)]
pub struct SharedBody;

/// Marks the response to a request for which there was no memory.
#[derive(Clone, Copy)]
pub struct NoRoom;
