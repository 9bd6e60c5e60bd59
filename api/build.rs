//! Sets `ASSAY_GIT_SHA`, the commit that this build was made from.

include!("../core/git_sha.rs");
