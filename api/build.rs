//! Tells the compiler which build this is.

include!("../core/git_sha.rs");
