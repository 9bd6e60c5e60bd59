//! The publication of suites: what is stored of a checked folder, and its checks that need the rules of the
//! platform. The operator's command publishes in one transaction. The checker stores content first, and
//! publishes it later.

mod checks;
mod content;

pub use assay_core::store::publish::{Publication, publish, published};
pub use checks::read;
pub use content::{Prepared, prepare, store_content};
