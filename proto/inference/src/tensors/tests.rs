use super::*;

/// Returns a request with one input in raw form.
fn raw(datatype: &str, shape: &[i64], raw: &[u8]) -> ModelInferRequest {
    ModelInferRequest {
        inputs: vec![InferTensor {
            name: String::from("x"),
            datatype: datatype.to_owned(),
            shape: shape.to_vec(),
            ..InferTensor::default()
        }],
        raw_input_contents: vec![Bytes::copy_from_slice(raw)],
        ..ModelInferRequest::default()
    }
}

/// Returns a request with one input in typed form.
fn typed(datatype: &str, shape: &[i64], contents: InferTensorContents) -> ModelInferRequest {
    let mut request = raw(datatype, shape, &[]);
    request.raw_input_contents.clear();
    request.inputs[0].contents = Some(contents);
    request
}

fn error<T>(read: Result<T, InvalidMessage>) -> String {
    read.err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

/// Reads `x` as strings with two dimensions, and returns the error.
fn strings_error(request: &ModelInferRequest) -> String {
    let tensors = Tensors::from_request(request).unwrap();
    error(tensors.read::<&str, 2>("x"))
}

fn integers_error(request: &ModelInferRequest) -> String {
    let tensors = Tensors::from_request(request).unwrap();
    error(tensors.read::<i64, 2>("x"))
}

#[test]
fn tensors_round_trip() {
    let mut tensors = TensorsBuilder::default();
    tensors.push_rows("names", 2, [vec!["é", ""], vec!["b"]].into_iter());
    tensors.push("lengths", &[2, 1], [i64::MIN, 7]);
    tensors.push("temperature", &[2, 1], [0.1_f64, -0.0]);
    tensors.push("scores", &[1, 2, 2], [f32::MIN_POSITIVE, 1.5, 2.5]);
    let mut request = ModelInferRequest::default();
    tensors.into_request(&mut request);
    assert_eq!(request.raw_input_contents[1].len(), 16);
    let tensors = Tensors::from_request(&request).unwrap();
    let names = tensors.read_required::<&str, 2>("names").unwrap();
    assert_eq!(
        (names.row(0), names.row(1)),
        (&["é", ""][..], &["b", ""][..])
    );
    assert!(names.row(2).is_empty() && names.row(usize::MAX).is_empty());
    let lengths = tensors.with_rows(2).read_required::<i64, 2>("lengths");
    assert_eq!(lengths.unwrap().elements, [i64::MIN, 7]);
    let temperature = tensors.read_required::<f64, 2>("temperature").unwrap();
    let bits: Vec<u64> = temperature.elements.iter().map(|x| x.to_bits()).collect();
    assert_eq!(bits, [0.1_f64.to_bits(), (-0.0_f64).to_bits()]);
    let scores = tensors.read_required::<f32, 3>("scores").unwrap();
    assert_eq!(scores.row(0), [f32::MIN_POSITIVE, 1.5, 2.5, 0.0]);
    assert_eq!(tensors.read::<f32, 3>("none"), Ok(None));
    assert_eq!(
        tensors.names().collect::<Vec<_>>(),
        ["names", "lengths", "temperature", "scores"]
    );
}

#[test]
fn typed_contents_equal_raw_contents() {
    let contents = InferTensorContents {
        bytes_contents: vec!["a".into(), "".into()],
        ..InferTensorContents::default()
    };
    let request = typed("BYTES", &[1, 2], contents);
    let tensors = Tensors::from_request(&request).unwrap();
    let read = tensors.read_required::<&str, 2>("x").unwrap();
    let same = raw("BYTES", &[1, 2], b"\x01\0\0\0a\0\0\0\0");
    let tensors = Tensors::from_request(&same).unwrap();
    assert_eq!(tensors.read_required::<&str, 2>("x").unwrap(), read);
    let contents = InferTensorContents {
        fp32_contents: vec![1.0, 2.0],
        ..InferTensorContents::default()
    };
    let request = typed("FP32", &[2], contents);
    let tensors = Tensors::from_request(&request).unwrap();
    let read = tensors.read_required::<f32, 1>("x").unwrap();
    assert_eq!((read.shape, read.elements), ([2], vec![1.0, 2.0]));
}

#[test]
fn overflowing_shapes_are_rejected() {
    for shape in [[i64::MAX, i64::MAX], [1 << 32, 1 << 32], [i64::MAX, 3]] {
        assert_eq!(
            integers_error(&raw("INT64", &shape, &[0; 16])),
            "The tensor `x` has a shape with too many elements."
        );
        assert_eq!(
            strings_error(&raw("BYTES", &shape, &[0; 16])),
            "The tensor `x` has a shape with too many elements."
        );
    }
    for shape in [[1 << 40, 1], [1, i64::MAX]] {
        assert!(integers_error(&raw("INT64", &shape, &[0; 16])).contains("has 16 bytes"));
        assert!(strings_error(&raw("BYTES", &shape, &[0; 16])).contains("too few for"));
        let contents = InferTensorContents::default();
        assert!(strings_error(&typed("BYTES", &shape, contents)).contains("has 0 elements"));
    }
}

#[test]
fn wrong_dimensions_are_rejected() {
    assert_eq!(
        integers_error(&raw("INT64", &[-1, 2], &[0; 16])),
        "The tensor `x` has a dimension of -1, which is no size."
    );
    for shape in [&[2][..], &[1, 2, 1], &[]] {
        assert_eq!(
            integers_error(&raw("INT64", shape, &[0; 16])),
            format!(
                "The tensor `x` must have 2 dimensions, and has {}.",
                shape.len()
            )
        );
    }
    let request = raw("INT64", &[1, 2], &[0; 16]);
    let tensors = Tensors::from_request(&request).unwrap().with_rows(2);
    assert_eq!(
        error(tensors.read::<i64, 2>("x")),
        "The tensor `x` must have 2 rows."
    );
}

#[test]
fn wrong_element_counts_are_rejected() {
    for length in [0, 8, 15, 17, 24] {
        assert_eq!(
            integers_error(&raw("INT64", &[1, 2], &vec![0; length])),
            format!("The tensor `x` has {length} bytes, but its shape has 2 elements of 8 bytes.")
        );
    }
    let contents = InferTensorContents {
        int64_contents: vec![1, 2, 3],
        ..InferTensorContents::default()
    };
    assert_eq!(
        integers_error(&typed("INT64", &[1, 2], contents.clone())),
        "The tensor `x` has 3 elements, but its shape has 2."
    );
    let mut both = raw("INT64", &[1, 2], &[0; 16]);
    both.inputs[0].contents = Some(contents);
    assert!(integers_error(&both).contains("both raw and typed contents"));
    // MLServer sends empty contents with raw ones.
    both.inputs[0].contents = Some(InferTensorContents::default());
    let tensors = Tensors::from_request(&both).unwrap();
    assert_eq!(
        tensors.read_required::<i64, 2>("x").unwrap().elements,
        [0, 0]
    );
    let mut neither = raw("INT64", &[1, 2], &[]);
    neither.raw_input_contents.clear();
    assert!(integers_error(&neither).contains("has 0 elements"));
    let empty = raw("INT64", &[0, 2], &[]);
    let tensors = Tensors::from_request(&empty).unwrap();
    let read = tensors.read_required::<i64, 2>("x").unwrap();
    assert!(read.elements.is_empty());
}

#[test]
fn string_lengths_beyond_the_end_are_rejected() {
    for (bytes, what) in [
        (&b"\x05\0\0\0abcd"[..], "ends within element 0"),
        (b"\xff\xff\xff\xffabcd", "ends within element 0"),
        (b"\x00\0\0", "too few"),
        (b"\x01\0\0\0abc", "has 2 bytes after its last element"),
    ] {
        let error = strings_error(&raw("BYTES", &[1, 1], bytes));
        assert!(error.contains(what), "{error}");
    }
    let error = strings_error(&raw("BYTES", &[1, 2], b"\x04\0\0\0abcd\x01\0\0"));
    assert!(error.contains("ends within element 1"), "{error}");
}

#[test]
fn text_that_is_not_utf8_is_rejected() {
    let expected = "The tensor `x` has no UTF-8 text in element 1.";
    let request = raw("BYTES", &[1, 2], b"\x01\0\0\0a\x02\0\0\0\xc3\x28");
    assert_eq!(strings_error(&request), expected);
    let contents = InferTensorContents {
        bytes_contents: vec!["a".into(), Bytes::from_static(b"\xff")],
        ..InferTensorContents::default()
    };
    assert_eq!(strings_error(&typed("BYTES", &[1, 2], contents)), expected);
}

#[test]
fn wrong_datatype_is_rejected() {
    for datatype in ["INT32", "FP64", "int64", ""] {
        assert_eq!(
            integers_error(&raw(datatype, &[1, 2], &[0; 16])),
            "The tensor `x` must have the datatype INT64."
        );
    }
    let request = raw("INT64", &[1, 2], &[0; 16]);
    let tensors = Tensors::from_request(&request).unwrap();
    assert_eq!(
        error(tensors.read_required::<i64, 2>("y")),
        "The tensor `y` is missing."
    );
}

#[test]
fn inconsistent_messages_are_rejected() {
    let mut twice = raw("INT64", &[1, 2], &[0; 16]);
    twice.inputs.push(twice.inputs[0].clone());
    assert!(error(Tensors::from_request(&twice)).contains("2 tensors, but raw contents of 1"));
    twice.raw_input_contents.push(Bytes::from_static(&[0; 16]));
    assert!(error(Tensors::from_request(&twice)).contains("have the same name"));
    let many = ModelInferResponse {
        outputs: vec![InferTensor::default(); TENSORS_MAX + 1],
        ..ModelInferResponse::default()
    };
    assert!(error(Tensors::from_response(&many)).contains("65 tensors, and 64 are allowed"));
}

#[test]
fn tensors_without_name_are_removed() {
    let mut tensors = TensorsBuilder::default();
    tensors.push("a", &[1], [1_i64]);
    tensors.push("b", &[1], [2.0_f32]);
    tensors.retain(&[]);
    let mut response = ModelInferResponse::default();
    tensors.clone().into_response(&mut response);
    assert_eq!(response.outputs.len(), 2);
    tensors.retain(&["b", "c"]);
    tensors.into_response(&mut response);
    let tensors = Tensors::from_response(&response).unwrap();
    assert_eq!(tensors.names().collect::<Vec<_>>(), ["b"]);
    let read = tensors.read_required::<f32, 1>("b").unwrap();
    assert_eq!(read.elements, [2.0]);
}
