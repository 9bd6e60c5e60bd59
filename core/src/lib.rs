//! What the api and the workers of Assay share.
//!
//! What lives here: ids, the error and its codes, resources (whose structs are the JSON bodies), pure rules, every SQL
//! statement (`store`), the queue and telemetry. What may not: axum and tonic.

pub mod artifact;
pub mod auth;
mod clock;
pub mod comparison;
pub mod connection;
pub mod domain;
mod error;
pub mod field;
mod id;
pub mod invite;
pub mod job;
pub mod key;
pub mod member;
pub mod model;
pub mod org;
pub mod page;
pub mod prediction;
pub mod principal;
pub mod process;
pub mod queue;
mod random;
pub mod schema;
pub mod secret;
pub mod session;
pub mod settings;
pub mod spans;
pub mod store;
pub mod suite;
pub mod suite_folder;
pub mod telemetry;
pub mod terms;
mod text_enum;
pub mod upload;
pub mod usage;
pub mod vitals;

pub use assay_eval::score::Figures;
pub use assay_eval::{
    Answer, AnswersCheck, Clip, Corrupt, Decimals, DisclosurePolicy, Family, K, Ladder, Metric, Scoring, Step, Sum, item_scores, json,
};
pub use clock::Timestamp;
pub use error::{CanFail, Code, Details, Error, FieldError, Resource, Result};
pub use id::{InviteId, JobId, KeyId, MalformedId, OrgId, RequestId, SessionId, UploadId, UserId, WorkerId};
