//! The URLs of the servers for clients.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns a database's URL on the socket in `folder`. The URL contains the port, which is
/// part of the socket's name, so that PGPORT in a client's environment has no effect.
pub(super) fn private_postgres(folder: &Path, port: u16, user: &str, database: &str) -> String {
    let host = encode(folder.as_os_str().as_bytes(), b"");
    format!(
        "postgres://{user}@localhost:{port}/{}?host={host}",
        encode_name(database)
    )
}

/// Returns the URL of the Redis server on a socket.
pub(super) fn private_redis(socket: &Path) -> String {
    format!(
        "redis+unix://{}",
        encode(socket.as_os_str().as_bytes(), b"/")
    )
}

/// Returns role and password, encoded for a URL.
pub(super) fn credentials(role: &str, password: &str) -> String {
    format!("{}:{}", encode_name(role), encode_name(password))
}

/// Returns a URL with another database, and with other credentials if given. Removes query
/// parameters of the replaced parts, because they would take precedence.
pub(super) fn replace(url: &str, credentials: Option<&str>, database: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let mut result = format!("{scheme}://");
    if let Some(user) = credentials.or(user) {
        result.extend([user, "@"]);
    }
    result.extend([host, "/", &encode_name(database)]);
    let is_kept = |pair: &&str| match pair.split('=').next().unwrap_or_default() {
        "" | "dbname" => false,
        "user" | "password" => credentials.is_none(),
        _ => true,
    };
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    if !kept.is_empty() {
        result.extend(["?", &kept.join("&")]);
    }
    result
}

fn encode_name(name: &str) -> String {
    encode(name.as_bytes(), b"")
}

/// Percent-encodes all bytes except unreserved characters and `kept`.
fn encode(bytes: &[u8], kept: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_encoded() {
        let folder = Path::new("/dev/shm/run 1");
        assert_eq!(
            private_postgres(folder, 5432, &credentials("a:b", "p@ss/word"), "main"),
            "postgres://a%3Ab:p%40ss%2Fword@localhost:5432/main?host=%2Fdev%2Fshm%2Frun%201"
        );
        assert_eq!(
            private_redis(&folder.join("r.sock")),
            "redis+unix:///dev/shm/run%201/r.sock"
        );
    }

    #[test]
    fn database_of_given_url_is_replaced() {
        let cases = [
            ("postgres://u:p@h:1/old", "postgres://u:p@h:1/new"),
            ("postgresql://h", "postgresql://h/new"),
            (
                "postgres://h/old?sslmode=require&dbname=x",
                "postgres://h/new?sslmode=require",
            ),
            (
                "postgres:///old?host=/run/pg",
                "postgres:///new?host=/run/pg",
            ),
        ];
        for (given, wanted) in cases {
            assert_eq!(replace(given, None, "new"), wanted);
        }
    }

    #[test]
    fn role_of_given_url_is_replaced() {
        let given = "postgres://u:p@h/old?user=x&password=y&a=b";
        assert_eq!(
            replace(given, Some("r:s"), "new"),
            "postgres://r:s@h/new?a=b"
        );
        assert_eq!(
            replace("postgres://h/old", Some("r:s"), "new"),
            "postgres://r:s@h/new"
        );
    }
}
