//! Limits on request headers, shared by the HTTP server and the syntax check.

/// Largest number of headers of a request.
pub const MAX_HEADERS: usize = 100;
/// Largest total size of the headers in bytes: names, values and 32 bytes per header, as HTTP/2
/// counts them.
pub const MAX_HEADERS_BYTES: usize = 16 * 1024;
