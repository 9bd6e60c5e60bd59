//! Conversions of resources to messages. `cargo contract` generates most of them into
//! `generated/conversions.rs`. The ones in this folder differ from their message in more than the
//! types of fields. Each one destructures the resource by name, so that a new field does not compile
//! until it is handled. No decisions are made here.

mod evals;
mod into_proto;
mod items_page;
mod jobs;
mod predictions;
mod receipts;
mod serving;
mod struct_writer;
mod structs;
mod transcode;

pub use evals::{CreateEvalFields, CreateEvalReader};
pub(crate) use into_proto::IntoProto;
pub use items_page::encode_items_page;
pub use predictions::{CreatePredictionFields, CreatePredictionReader};
pub use serving::{InvalidTimestamp, sequences};
pub use structs::object;
pub use transcode::{CreateReader, LargeFields, Unreadable};
