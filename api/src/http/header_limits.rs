//! Limits on request headers, shared by the HTTP server and the syntax check.

/// A request's largest header count.
pub const MAX_HEADERS: usize = 100;
/// The headers' largest total size in bytes: names, values and 32 bytes per header, as HTTP/2
/// counts them.
pub const MAX_HEADERS_BYTES: usize = 16 * 1024;
