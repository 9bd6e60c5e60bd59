//! The predictions' normal form, by whose digest a receipt names a submission.
//!
//! Every prediction is one line: the canonical JSON (RFC 8785) for `{"item_id", "prediction"}`, and
//! a line feed. The lines are in submission order. The form depends neither on white
//! space, escapes or further fields, nor on whether the predictions were sent in a request, as an
//! upload or by gRPC.

use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use super::sink::PredictionSink;
use super::value::{Prediction, Value};
use crate::error::FieldError;

/// A [`PredictionSink`] that hashes the predictions' normal form, and passes them on to
/// another sink.
pub struct HashedPredictions<S> {
    sink: S,
    hash: Sha256,
    line: Vec<u8>,
}

impl<S> HashedPredictions<S> {
    /// Creates a sink that passes the predictions on to `sink`.
    pub fn new(sink: S) -> Self {
        Self {
            sink,
            hash: Sha256::new(),
            line: Vec::new(),
        }
    }

    /// Returns the other sink, and the SHA-256 over the normal form of predictions that it took.
    pub fn finish(self) -> (S, [u8; 32]) {
        (self.sink, self.hash.finalize().into())
    }
}

impl<'a, S: PredictionSink<'a>> PredictionSink<'a> for HashedPredictions<S> {
    type Stop = S::Stop;

    fn prefetch(&mut self, item_ids: &[&str]) {
        self.sink.prefetch(item_ids);
    }

    fn take(
        &mut self,
        prediction: Result<Prediction<'_, 'a>, FieldError>,
    ) -> ControlFlow<Self::Stop> {
        if let Ok(prediction) = &prediction {
            self.line.clear();
            write_line(prediction, &mut self.line);
            self.hash.update(&self.line);
        }
        self.sink.take(prediction)
    }
}

/// Appends a prediction's line. A prediction that failed has the value `null`.
fn write_line(prediction: &Prediction<'_, '_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"item_id\":");
    write_string(&prediction.item_id, out);
    out.extend_from_slice(b",\"prediction\":");
    match prediction.value {
        Value::Label(label) => write_string(label, out),
        Value::Ranking(ids) => {
            out.push(b'[');
            for (at, id) in ids.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_string(id, out);
            }
            out.push(b']');
        }
        Value::Number(number) => write_number(number, out),
        Value::Probabilities(probabilities) => {
            let mut sorted: Vec<_> = probabilities.iter().collect();
            // RFC 8785, section 3.2.3: names are sorted by their UTF-16 code units.
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            out.push(b'{');
            for (at, (label, probability)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_string(label, out);
                out.push(b':');
                write_number(*probability, out);
            }
            out.push(b'}');
        }
        Value::Failed => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"}\n");
}

/// Appends a string with the escapes in RFC 8785, section 3.2.2.2: those that JSON requires, the
/// short ones where they exist.
fn write_string(string: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = string.as_bytes();
    while let Some(at) = rest
        .iter()
        .position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'))
    {
        let (plain, [byte, after @ ..]) = rest.split_at(at) else {
            break;
        };
        out.extend_from_slice(plain);
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Appends a finite number as ECMAScript writes it (RFC 8785, section 3.2.2.3).
fn write_number(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(ryu_js::Buffer::new().format_finite(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::{read, sink_fn};

    fn normal(json: &str) -> String {
        let mut out = Vec::new();
        let mut sink = sink_fn(|prediction: Result<Prediction<'_, '_>, FieldError>| {
            write_line(&prediction.unwrap(), &mut out);
            ControlFlow::<()>::Continue(())
        });
        let _ = read(json.as_bytes(), &mut sink).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn form_does_not_depend_on_the_document() {
        let one = r#"[{"item_id": "a\u00e4\/", "prediction": {"b": 0.50, "a": 5e-1}, "extra": 1}, {"prediction": ["x", "y\n"], "item_id": "2"}]"#;
        let expected = "{\"item_id\":\"aä/\",\"prediction\":{\"a\":0.5,\"b\":0.5}}\n{\"item_id\":\"2\",\"prediction\":[\"x\",\"y\\n\"]}\n";
        assert_eq!(normal(one), expected);
        assert_eq!(
            normal(r#"[{"item_id":"1","error":{"code":"x","message":"y"}}]"#),
            "{\"item_id\":\"1\",\"prediction\":null}\n"
        );
    }

    /// The examples in RFC 8785, sections 3.2.2, 3.2.3 and appendix B.
    #[test]
    fn form_is_that_of_rfc_8785() {
        let numbers = [
            (0x0000_0000_0000_0000_u64, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ];
        for (bits, expected) in numbers {
            let mut out = Vec::new();
            write_number(f64::from_bits(bits), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        write_string("€$\u{f}\nA'B\"\\\\\"/\u{7f}\u{1f}\u{8}\u{c}\r\t", &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\u{7f}\\u001f\\b\\f\\r\\t\""
        );
        // U+FB33 follows U+1F600 in UTF-16, but precedes it in UTF-8.
        let keys = r#"[{"item_id":"1","prediction":{"\u20ac":0.1,"\r":0.1,"\ufb33":0.1,"1":0.1,"\ud83d\ude00":0.1,"\u0080":0.1,"\u00f6":0.4}}]"#;
        assert_eq!(
            normal(keys),
            "{\"item_id\":\"1\",\"prediction\":{\"\\r\":0.1,\"1\":0.1,\"\u{80}\":0.1,\"ö\":0.4,\"€\":0.1,\"😀\":0.1,\"\u{fb33}\":0.1}}\n"
        );
    }

    #[test]
    fn hash_is_that_of_the_lines() {
        let json = r#"[{"item_id":"1","prediction":"a"},{"item_id":"2","prediction":1.0}]"#;
        let mut taken = 0;
        let count = sink_fn(|_: Result<Prediction<'_, '_>, FieldError>| {
            taken += 1;
            ControlFlow::<()>::Continue(())
        });
        let mut hashed = HashedPredictions::new(count);
        let _ = read(json.as_bytes(), &mut hashed).unwrap();
        let (_, hash) = hashed.finish();
        let expected: [u8; 32] = Sha256::digest(normal(json)).into();
        assert_eq!(hash, expected);
        assert_eq!(taken, 2);
    }
}
