//! The code that the API and the workers share: the resources (`model`), every SQL statement
//! (`store`), and the runtime of both processes (`runtime`). The HTTP and gRPC interfaces do not
//! belong to it.

pub mod model;
pub mod runtime;
pub mod store;

pub use model::error::{BestEffort, Code, Error, Result};
pub use model::error_details::{Details, Resource};
pub use model::ids::{
    DeliveryId, DeviceLoginId, DraftId, EventId, GrantId, InviteId, JobId, KeyId, MalformedId,
    OrgId, ReceiptId, RequestId, SessionId, UploadId, UserId, WebhookId, WorkerId,
};
pub use model::timestamp::Timestamp;
