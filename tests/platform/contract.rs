//! The gRPC contract: its generated files, and the descriptors that reflection serves.

use std::path::{Path, PathBuf};

use assay_proto::OPERATIONS;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::method_options::IdempotencyLevel;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodOptions};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn generated_files_are_current() {
    let sources = assay_contract::read_sources(&root()).unwrap();
    let documents = assay_contract::read_documents(&root()).unwrap();
    let files = assay_contract::generate(&sources, &documents).unwrap();
    let stale = files.iter().filter(|file| {
        let content = std::fs::read_to_string(root().join(file.path));
        content.unwrap_or_default() != file.content
    });
    let stale: Vec<&str> = stale.map(|file| file.path).collect();
    assert!(
        stale.is_empty(),
        "differs from the contract, run `cargo contract`: {}",
        stale.join(", ")
    );
}

/// The file that declares the options.
const OPTIONS: &str = "assay/v1/options.proto";

/// Removes the options of the contract that are not interpreted yet, and options without a value.
macro_rules! remove_options {
    ($declaration:expr) => {
        if let Some(options) = &mut $declaration.options {
            options
                .uninterpreted_option
                .retain(|option| !option.name[0].name_part.starts_with("assay.v1."));
            $declaration
                .options
                .take_if(|options| *options == Default::default());
        }
    };
}

fn without_options(mut file: FileDescriptorProto) -> FileDescriptorProto {
    fn remove_from_messages(messages: &mut [DescriptorProto]) {
        for message in messages {
            remove_options!(message);
            for field in &mut message.field {
                remove_options!(field);
            }
            remove_from_messages(&mut message.nested_type);
        }
    }
    file.dependency.retain(|name| name != OPTIONS);
    file.source_code_info = None;
    remove_from_messages(&mut file.message_type);
    for service in &mut file.service {
        remove_options!(service);
        for method in &mut service.method {
            remove_options!(method);
        }
    }
    file
}

/// Reads the contract as if it had no options.
struct WithoutOptions;

impl FileResolver for WithoutOptions {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if !name.starts_with("assay/v1/") {
            return Err(protox::Error::file_not_found(name));
        }
        let text = std::fs::read_to_string(root().join("proto").join(name))?;
        let file = File::from_source(name, &text)?;
        let file = without_options(file.file_descriptor_proto().clone());
        Ok(File::from_file_descriptor_proto(file))
    }
}

#[test]
fn descriptors_are_those_without_options() {
    let published = FileDescriptorSet::decode(assay_proto::DESCRIPTORS).unwrap();
    let published: Vec<FileDescriptorProto> = published
        .file
        .into_iter()
        .filter(|file| file.name() != OPTIONS && file.name() != "google/protobuf/descriptor.proto")
        .map(without_options)
        .collect();
    assert!(published.len() > 20, "the contract is not found");

    let mut resolver = ChainFileResolver::new();
    resolver.add(WithoutOptions);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    let own = published
        .iter()
        .map(FileDescriptorProto::name)
        .filter(|name| name.starts_with("assay/v1/"));
    compiler.open_files(own).unwrap();
    compiler.include_imports(true);
    let compiled = compiler.file_descriptor_set().file;

    let names = |files: &[FileDescriptorProto]| -> Vec<String> {
        files.iter().map(|file| file.name().to_owned()).collect()
    };
    assert_eq!(names(&published), names(&compiled));
    for (published, compiled) in published.iter().zip(&compiled) {
        assert!(published == compiled, "{} differs", published.name());
    }
}

#[test]
fn reflection_has_no_options() {
    let check = |name: &str, options: DynamicMessage| {
        let is_plain = options.extensions().next().is_none()
            && options.unknown_fields().next().is_none()
            && !options.has_field_by_name("uninterpreted_option");
        assert!(is_plain, "{name}: {options:?}");
    };
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    for file in pool.files() {
        check(file.name(), file.options());
    }
    for message in pool.all_messages() {
        check(message.full_name(), message.options());
        for field in message.fields() {
            check(field.full_name(), field.options());
        }
    }
    for service in pool.services() {
        check(service.full_name(), service.options());
        for method in service.methods() {
            check(method.full_name(), method.options());
        }
    }
}

#[test]
fn reads_have_no_side_effects() {
    let set = FileDescriptorSet::decode(assay_proto::DESCRIPTORS).unwrap();
    let mut reads = 0;
    for file in &set.file {
        for service in &file.service {
            for rpc in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), rpc.name());
                let found = OPERATIONS
                    .iter()
                    .find(|operation| operation.rpcs.contains(&path.as_str()));
                let level = rpc.options.as_ref().map(MethodOptions::idempotency_level);
                let is_read = found.is_some_and(|operation| operation.method == "GET");
                assert!(
                    !is_read || level == Some(IdempotencyLevel::NoSideEffects),
                    "{path} is a read: give it the option idempotency_level = NO_SIDE_EFFECTS"
                );
                reads += usize::from(is_read);
            }
        }
    }
    assert!(reads > 30, "{reads}");
}
