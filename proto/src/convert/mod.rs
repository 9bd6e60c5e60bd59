//! Conversions of resources to messages, field by field. Each one destructures the resource by
//! name, so that a new field does not compile until it is handled. No decisions are made here.

mod audit;
mod auth;
mod boards;
mod comparisons;
mod domains;
mod evals;
mod events;
mod invites;
mod items_page;
mod jobs;
mod keys;
mod me;
mod members;
mod models;
mod predictions;
mod queue;
mod receipts;
mod serving;
mod sessions;
mod struct_writer;
mod structs;
mod suites;
mod terms;
mod transcode;
mod uploads;
mod usage;
mod webhooks;

pub use evals::{CreateEvalFields, CreateEvalReader};
pub use items_page::encode_items_page;
pub use predictions::{CreatePredictionFields, CreatePredictionReader};
pub use serving::{InvalidTimestamp, sequences};
pub use structs::object;
pub use transcode::{CreateReader, LargeFields, Unreadable};

use assay_core::Timestamp;

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix_seconds(),
        nanos: i32::try_from(at.subsecond_nanos()).unwrap_or_default(),
    }
}
