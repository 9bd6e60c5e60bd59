//! Sets `ASSAY_GIT_SHA`, the commit of the build.

include!("../core/git_sha.rs");
