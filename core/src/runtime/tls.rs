//! TLS connections' cryptography.

/// Selects rustls's cryptography library for this process, unless one is selected. The HTTP
/// client requires it.
pub fn select_cryptography() {
    // An error means that one is selected already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
