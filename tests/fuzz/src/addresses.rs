//! Email addresses and domains.

use assay_core::model::email_domain::{DomainRecord, claimable};
use assay_core::model::validation::{DOMAIN_MAX, domain, email};
use hickory_proto::rr::Name;

use super::assert_safe_message;

/// Addresses and domains have one canonical form, which the mail library and DNS queries accept.
pub fn addresses(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match email("email", text) {
        Ok(address) => {
            assert!(
                address.is_ascii()
                    && address.len() <= 254
                    && address == address.to_ascii_lowercase()
            );
            assert!(!address.contains(|c: char| c.is_ascii_control() || c == ' '));
            assert_eq!(email("email", &address), Ok(address.clone()));
            assert_eq!(
                email("email", &format!("  {}\t", address.to_ascii_uppercase())),
                Ok(address.clone())
            );
            let (local, host) = address.rsplit_once('@').unwrap();
            assert!((1..=64).contains(&local.len()) && !local.contains('@'));
            assert_eq!(domain("domain", host).as_deref(), Ok(host));
            // The mail library parses the same address.
            let sent: lettre::Address = address
                .parse()
                .unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!((sent.user(), sent.domain()), (local, host));
        }
        Err(error) => assert_safe_message(&error.message),
    }
    match domain("domain", text) {
        Ok(name) => {
            assert!(
                name.is_ascii()
                    && (1..=DOMAIN_MAX).contains(&name.len())
                    && name == name.to_ascii_lowercase()
            );
            assert!(name.split('.').all(|label| (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')));
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
            );
            assert!(name.parse::<std::net::IpAddr>().is_err());
            for same in [
                name.clone(),
                format!("{name}."),
                format!(" {}\n", name.to_ascii_uppercase()),
            ] {
                assert_eq!(domain("domain", &same), Ok(name.clone()));
            }
        }
        Err(error) => assert_safe_message(&error.message),
    }
    match claimable("domain", text) {
        Ok(name) => {
            assert_eq!(domain("domain", text), Ok(name.clone()));
            assert!(name.contains('.'));
            let record = DomainRecord::new(&name, "token");
            assert!(
                Name::from_ascii(format!("{}.", record.name)).is_ok(),
                "{}",
                record.name
            );
        }
        Err(error) => assert!(
            [
                "required",
                "format",
                "range",
                "public_suffix",
                "public_mail"
            ]
            .contains(&error.reason)
        ),
    }
}
