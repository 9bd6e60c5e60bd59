//! The dashboard pages' security headers.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

/// Scripts, styles and requests for this origin only, no inline ones, and no text that becomes HTML
/// except by the script's one policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types assay";

/// Sets the headers. Those that are set already, such as a style sheet's `Cache-Control`,
/// remain.
pub fn set(headers: &mut HeaderMap) {
    let values = [
        (CONTENT_SECURITY_POLICY, POLICY),
        // Not `no-referrer`: with it, browsers send `Origin: null` with forms.
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (
            http::HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            http::HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (CACHE_CONTROL, "no-store"),
        (VARY, "Cookie"),
    ];
    for (name, value) in values {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}
