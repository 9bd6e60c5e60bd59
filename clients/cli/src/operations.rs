//! The operations of the API that the program uses, and those that `assay api` must not repeat. A test
//! compares them with the OpenAPI document.

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The `operationId` of the OpenAPI document; the method for an unknown operation.
    pub id: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The template of the path. Empty for an unknown operation.
    pub path: &'static str,
}

/// Declares the operations, and the list of all of them.
macro_rules! operations {
    ($($name:ident = $id:literal $method:literal $path:literal;)*) => {
        $(
            #[doc = concat!("`", $method, " ", $path, "`")]
            pub const $name: Operation = Operation {
                id: $id,
                method: $method,
                path: $path,
            };
        )*

        /// All operations that the program knows.
        const ALL: &[Operation] = &[$($name),*];
    };
}

operations! {
    GET_ME = "getMe" "GET" "/v1/me";
    LIST_KEYS = "listKeys" "GET" "/v1/keys";
    CREATE_KEY = "createKey" "POST" "/v1/keys";
    REVOKE_KEY = "revokeKey" "DELETE" "/v1/keys/{key_id}";
    UPDATE_KEY = "updateKey" "PATCH" "/v1/keys/{key_id}";
    ROTATE_KEY = "rotateKey" "POST" "/v1/keys/{key_id}/rotate";
    LIST_SUITES = "listSuites" "GET" "/v1/suites";
    GET_SUITE = "getSuite" "GET" "/v1/suites/{suite_id}";
    GET_BOARD = "getBoard" "GET" "/v1/suites/{suite_id}/board";
    LIST_SUITE_ITEMS = "listSuiteItems" "GET" "/v1/suites/{suite_id}/items";
    LIST_MEMBERS = "listMembers" "GET" "/v1/members";
    REMOVE_MEMBER = "removeMember" "DELETE" "/v1/members/{user_id}";
    UPDATE_MEMBER = "updateMember" "PATCH" "/v1/members/{user_id}";
    LIST_MODELS = "listModels" "GET" "/v1/models";
    GET_MODEL = "getModel" "GET" "/v1/models/{model_id}";
    GET_USAGE = "getUsage" "GET" "/v1/usage";
    LIST_USAGE_DAYS = "listUsageDays" "GET" "/v1/usage/days";
    CREATE_EVAL = "createEval" "POST" "/v1/evals";
    CREATE_COMPARISON = "createComparison" "POST" "/v1/comparisons";
    LIST_JOBS = "listJobs" "GET" "/v1/jobs";
    GET_JOB = "getJob" "GET" "/v1/jobs/{job_id}";
    CANCEL_JOB = "cancelJob" "POST" "/v1/jobs/{job_id}/cancel";
    GET_JOB_RECEIPT = "getJobReceipt" "GET" "/v1/jobs/{job_id}/receipt";
    LIST_JOB_ITEMS = "listJobItems" "GET" "/v1/jobs/{job_id}/items";
    GET_JOB_TRACE = "getJobTrace" "GET" "/v1/jobs/{job_id}/trace";
    CREATE_UPLOAD = "createUpload" "POST" "/v1/uploads";
    GET_UPLOAD = "getUpload" "GET" "/v1/uploads/{upload_id}";
    DELETE_UPLOAD = "deleteUpload" "DELETE" "/v1/uploads/{upload_id}";
    PUT_UPLOAD_PART = "putUploadPart" "PUT" "/v1/uploads/{upload_id}/parts/{number}";
    COMPLETE_UPLOAD = "completeUpload" "POST" "/v1/uploads/{upload_id}/complete";
    CREATE_DEVICE_LOGIN = "createDeviceLogin" "POST" "/v1/auth/device";
    POLL_DEVICE_LOGIN = "pollDeviceLogin" "POST" "/v1/auth/device/token";
    END_SESSION = "endSession" "DELETE" "/v1/session";
    LIST_INVITES = "listInvites" "GET" "/v1/invites";
    CREATE_ORG = "createOrg" "POST" "/v1/orgs";
    CREATE_PREDICTION = "createPrediction" "POST" "/v1/predictions";
    PREDICT = "predict" "POST" "/v1/models/{model_id}/predict";
    GENERATE = "generate" "POST" "/v1/models/{model_id}/generate";
    EMBED = "embed" "POST" "/v1/models/{model_id}/embed";
    CREATE_ENTRY = "createEntry" "POST" "/v1/jobs/{job_id}/board";
    DELETE_ENTRY = "deleteEntry" "DELETE" "/v1/entries/{entry_id}";
    FINALIZE_JOB = "finalizeJob" "POST" "/v1/jobs/{job_id}/final";
    GET_JOB_OUTPUT = "getJobOutput" "GET" "/v1/jobs/{job_id}/output";
    CREATE_INVITE = "createInvite" "POST" "/v1/invites";
    REVOKE_INVITE = "revokeInvite" "DELETE" "/v1/invites/{invite_id}";
    LIST_DOMAINS = "listDomains" "GET" "/v1/domains";
    CLAIM_DOMAIN = "claimDomain" "POST" "/v1/domains";
    VERIFY_DOMAIN = "verifyDomain" "POST" "/v1/domains/{domain}/verify";
    RELEASE_DOMAIN = "releaseDomain" "DELETE" "/v1/domains/{domain}";
    UPDATE_DOMAIN = "updateDomain" "PATCH" "/v1/domains/{domain}";
    LIST_WEBHOOKS = "listWebhooks" "GET" "/v1/webhooks";
    CREATE_WEBHOOK = "createWebhook" "POST" "/v1/webhooks";
    GET_WEBHOOK = "getWebhook" "GET" "/v1/webhooks/{webhook_id}";
    DELETE_WEBHOOK = "deleteWebhook" "DELETE" "/v1/webhooks/{webhook_id}";
    UPDATE_WEBHOOK = "updateWebhook" "PATCH" "/v1/webhooks/{webhook_id}";
    ROTATE_WEBHOOK = "rotateWebhook" "POST" "/v1/webhooks/{webhook_id}/rotate";
    TEST_WEBHOOK = "testWebhook" "POST" "/v1/webhooks/{webhook_id}/test";
    LIST_DELIVERIES = "listDeliveries" "GET" "/v1/webhooks/{webhook_id}/deliveries";
    RETRY_DELIVERY = "retryDelivery" "POST" "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/retry";
    RECOVER_WEBHOOK = "recoverWebhook" "POST" "/v1/webhooks/{webhook_id}/recover";
}

/// Returns the operation of a request, so that it is repeated as the retry table says. An operation
/// that the program does not know has the id and the rules of its method.
pub fn find(method: &'static str, path: &str) -> Operation {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let matches = |operation: &&Operation| {
        let template = operation.path.split('/');
        operation.method == method
            && template.clone().count() == path.split('/').count()
            && template
                .zip(path.split('/'))
                .all(|(expected, found)| expected.starts_with('{') || expected == found)
    };
    let unknown = Operation {
        id: method,
        method,
        path: "",
    };
    ALL.iter().find(matches).copied().unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_those_of_the_document() {
        let document: serde_json::Value =
            serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
        for operation in ALL {
            let method = operation.method.to_lowercase();
            assert_eq!(
                document["paths"][operation.path][method]["operationId"], operation.id,
                "{operation:?}"
            );
        }
    }

    #[test]
    fn table_of_retries_names_known_operations() {
        let table: serde_json::Value =
            serde_json::from_str(include_str!("../../retries.json")).unwrap();
        for id in table["operations"].as_object().unwrap().keys() {
            assert!(ALL.iter().any(|operation| operation.id == id), "{id}");
        }
    }
}
