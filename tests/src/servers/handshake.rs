//! The part of the PostgreSQL protocol that shows if a server accepts connections.

use super::trouble::Trouble;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Version 3.0 of PostgreSQL's protocol.
const VERSION: i32 = 3 << 16;

/// The SQLSTATE of a server that is starting up, shutting down or recovering.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// The startup parameters. The time zone is included as by usual clients, because a server without
/// time zone data rejects it, and that must be detected here.
const PARAMETERS: [&str; 6] = [
    "user", "postgres", "database", "postgres", "TimeZone", "UTC",
];

/// Maximum length in bytes of a message during startup.
const LONGEST: usize = 64 * 1024;

/// Returns `true` if the server accepts queries, and an error if it never will.
pub(super) fn is_ready(socket: &Path) -> Result<bool, Trouble> {
    // During startup the socket is missing, or nobody listens, or the connection breaks.
    connect(socket).unwrap_or(Ok(false))
}

fn connect(socket: &Path) -> io::Result<Result<bool, Trouble>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&startup())?;
    let response = read_response(&mut stream)?;
    // Terminate, so that the server does not log a lost connection. It may have closed already.
    let _ = stream.write_all(b"X\0\0\0\x04");
    Ok(response)
}

/// Returns the startup packet of a session.
fn startup() -> Vec<u8> {
    let mut body = VERSION.to_be_bytes().to_vec();
    for text in PARAMETERS {
        body.extend_from_slice(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), body.as_slice()].concat()
}

/// Reads messages until the server is ready for a query or reports an error.
fn read_response(stream: &mut impl Read) -> io::Result<Result<bool, Trouble>> {
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let length = length.checked_sub(4).filter(|length| *length <= LONGEST);
        let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => return Ok(Ok(true)),
            b'E' => return Ok(refusal(&body)),
            _ => {}
        }
    }
}

/// Distinguishes "not yet" (`Ok(false)`) from "never" (an error).
fn refusal(body: &[u8]) -> Result<bool, Trouble> {
    if field(body, 'C').as_deref() == Some(CANNOT_CONNECT_NOW) {
        return Ok(false);
    }
    let message = field(body, 'M').unwrap_or_default();
    Err(Trouble::new(format!(
        "The private PostgreSQL server refuses connections: {message}."
    )))
}

/// Returns one field of an error message; a field is a letter and a zero-terminated string.
fn field(body: &[u8], letter: char) -> Option<String> {
    let mut fields = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    fields.find_map(|field| field.strip_prefix(letter).map(str::to_owned))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a message of PostgreSQL's protocol: type, length and body.
    pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap_or_default();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    #[test]
    fn the_startup_packet_states_its_length() {
        let packet = startup();
        assert_eq!(
            packet[..4],
            [0, 0, 0, u8::try_from(packet.len()).unwrap_or_default()]
        );
        assert_eq!(packet[4..8], [0, 3, 0, 0]);
        assert!(packet.ends_with(b"TimeZone\0UTC\0\0"));
    }

    #[test]
    fn a_session_is_ready_after_its_greetings() {
        let talk = [
            message(b'R', &[0; 4]),
            message(b'S', b"a\0b\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        assert!(matches!(read_response(&mut talk.as_slice()), Ok(Ok(true))));
        assert!(read_response(&mut &talk[..9]).is_err());
        assert!(read_response(&mut [b'H'; 5].as_slice()).is_err());
    }

    #[test]
    fn not_yet_differs_from_never() {
        let not_yet = message(
            b'E',
            b"SFATAL\0C57P03\0Mthe database system is starting up\0\0",
        );
        assert!(matches!(
            read_response(&mut not_yet.as_slice()),
            Ok(Ok(false))
        ));
        let never = message(b'E', b"SFATAL\0C22023\0Minvalid value\0\0");
        let response = read_response(&mut never.as_slice());
        assert!(
            matches!(response, Ok(Err(trouble)) if trouble.to_string().contains("invalid value"))
        );
    }
}
