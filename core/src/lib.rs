//! Shared by the API and the workers: the resources (`model`), every SQL statement (`store`), and what both processes run on
//! (`runtime`). Axum and tonic do not belong here.

pub mod model;
pub mod runtime;
pub mod store;

pub use model::error::{BestEffort, Code, Details, Error, Resource, Result};
pub use model::ids::{
    InviteId, JobId, KeyId, MalformedId, OrgId, RequestId, SessionId, UploadId, UserId, WorkerId,
};
pub use model::timestamp::Timestamp;
