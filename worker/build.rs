//! Sets `ASSAY_GIT_SHA`, the build's commit.

include!("../core/git_sha.rs");
