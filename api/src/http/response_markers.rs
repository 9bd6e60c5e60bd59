//! Markers in a response's extensions, which a handler or an inner layer sets and an outer
//! layer reads.

/// Marks a response whose body is shared by all responses, so that it is not charged to a request.
#[derive(Clone, Copy)]
pub struct SharedBody;

/// Marks the response to a request that was refused because the memory budget is spent.
#[derive(Clone, Copy)]
pub struct NoRoom;
