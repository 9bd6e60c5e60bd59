//! Limits on the headers of a request, which the HTTP library and the syntax check share.

/// Largest number of headers of a request.
pub const MAX_HEADERS: usize = 100;
/// Largest total size of the headers in bytes: names, values and 32 for each, as HTTP/2 counts them.
pub const MAX_HEADERS_BYTES: usize = 16 * 1024;
