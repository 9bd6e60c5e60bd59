//! The credentials that operations require, as a list of their own: a declaration that opens an operation
//! by mistake differs from it.

use std::collections::BTreeSet;

use assay_proto::OPERATIONS;
use assay_proto::operations::{Access, Operation};

fn ids(fits: impl Fn(&Operation) -> bool) -> BTreeSet<&'static str> {
    let fitting = OPERATIONS.iter().filter(|operation| fits(operation));
    fitting.map(|operation| operation.id).collect()
}

#[test]
fn operations_without_credential() {
    let open = ids(|operation| matches!(operation.access, Access::Anyone | Access::Public(_)));
    let expected = [
        "getHealth",
        "requestSignIn",
        "signIn",
        "createDeviceLogin",
        "pollDeviceLogin",
        "getSuite",
        "listSuiteItems",
        "listSuiteVersions",
        "getSuiteCommitment",
        "getSuiteOpening",
        "getBoard",
        "getReceipt",
    ];
    assert_eq!(open, BTreeSet::from(expected));
}

#[test]
fn owner_operations() {
    let expected = [
        "acceptTerms",
        "claimDomain",
        "createInvite",
        "createWebhook",
        "deleteWebhook",
        "getReceiptOpening",
        "getWebhook",
        "listAuditEntries",
        "listDeliveries",
        "listInvites",
        "listWebhooks",
        "recoverWebhook",
        "releaseDomain",
        "removeEntry",
        "removeMember",
        "restoreEntry",
        "retireSuite",
        "retryDelivery",
        "revokeInvite",
        "rotateWebhook",
        "testWebhook",
        "updateDomain",
        "updateMember",
        "updateOrg",
        "updateWebhook",
        "verifyDomain",
    ];
    let found = ids(|operation| operation.access == Access::Owner);
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn operations_that_require_terms() {
    let expected = [
        "createEval",
        "createKey",
        "createPrediction",
        "embed",
        "generate",
        "predict",
        "rotateKey",
    ];
    assert_eq!(ids(|operation| operation.terms), BTreeSet::from(expected));
}
