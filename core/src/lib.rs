//! What the api and the workers of Assay share.
//!
//! What lives here: ids, the error and its codes, resources (whose structs are the JSON bodies), pure rules, every SQL
//! statement (`store`), the queue and telemetry. What may not: axum and tonic.

mod answer;
pub mod artifact;
pub mod auth;
pub mod calibration;
mod clock;
pub mod comparison;
pub mod connection;
pub mod domain;
mod error;
pub mod field;
mod id;
pub mod invite;
pub mod item_scores;
pub mod job;
pub mod json;
pub mod key;
pub mod member;
mod metric;
pub mod model;
pub mod org;
pub mod prediction;
pub mod principal;
pub mod process;
pub mod queue;
mod random;
mod release;
pub mod schema;
pub mod secret;
pub mod settings;
pub mod spans;
pub mod store;
pub mod suite;
pub mod suite_folder;
mod sum;
pub mod telemetry;
pub mod terms;
mod text_enum;
pub mod upload;
pub mod usage;
pub mod vitals;

pub use answer::{Answer, AnswersCheck};
pub use clock::Timestamp;
pub use error::{CanFail, Code, Details, Error, FieldError, Resource, Result};
pub use id::{InviteId, JobId, KeyId, MalformedId, OrgId, RequestId, SessionId, UploadId, UserId, WorkerId};
pub use metric::{Family, K, Metric, Scoring};
pub use release::{Decimals, Ladder, Release, Step};
pub use sum::Sum;
