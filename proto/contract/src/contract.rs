//! Reading the contract with its options.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::problem::Problem;

/// The texts of the contract, by their names in imports, such as `assay/v1/webhooks.proto`.
pub type Sources = BTreeMap<String, String>;

/// The package of the contract.
const PACKAGE: &str = "assay.v1";

/// Reads the contract of a repository.
///
/// # Errors
/// If a file cannot be read.
pub fn read_sources(root: &Path) -> io::Result<Sources> {
    let mut sources = Sources::new();
    for entry in std::fs::read_dir(root.join("proto/assay/v1"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.ends_with(".proto")
        {
            let text = std::fs::read_to_string(&path)?;
            sources.insert(format!("assay/v1/{name}"), text);
        }
    }
    Ok(sources)
}

/// Finds imported files among the texts of the contract.
struct SourceResolver(Sources);

impl FileResolver for SourceResolver {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// The compiled contract.
pub struct Contract(DescriptorPool);

impl Contract {
    /// Compiles the contract. The types of prost drop the values of options, so the compiler's own
    /// descriptors are used.
    ///
    /// # Errors
    /// An error for each file that does not compile.
    pub fn compile(sources: &Sources) -> Result<Self, Vec<Problem>> {
        let mut resolver = ChainFileResolver::new();
        resolver.add(SourceResolver(sources.clone()));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        let mut problems = Vec::new();
        for name in sources.keys() {
            if let Err(error) = compiler.open_file(name) {
                let problem = Problem::from(error);
                // Each file that imports a wrong one has the same error.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        if problems.is_empty() {
            Ok(Self(compiler.descriptor_pool()))
        } else {
            Err(problems)
        }
    }

    /// Returns the messages of the contract, by file and in the order of their declarations.
    pub fn messages(&self) -> Vec<MessageDescriptor> {
        let messages = self.0.all_messages();
        let mut messages: Vec<_> = messages
            .filter(|message| message.package_name() == PACKAGE)
            .collect();
        let place = |message: &MessageDescriptor| {
            (
                message.parent_file().name().to_owned(),
                message.path().to_vec(),
            )
        };
        messages.sort_by_cached_key(place);
        messages
    }

    /// Returns the message of this name.
    pub fn message(&self, name: &str) -> Option<MessageDescriptor> {
        self.0.get_message_by_name(&format!("{PACKAGE}.{name}"))
    }

    /// Returns the option `message` of a message. `None` if it has none.
    pub fn message_option(&self, message: &MessageDescriptor) -> Option<MessageOption> {
        let extension = self.0.get_extension_by_name("assay.v1.message")?;
        let options = message.options();
        if !options.has_extension(&extension) {
            return None;
        }
        let option = options.get_extension(&extension);
        let option = option.as_message()?;
        Some(MessageOption {
            resource: text(option, "resource"),
            flatten: Some(text(option, "flatten")).filter(|name| !name.is_empty()),
        })
    }
}

/// The option `message`, as `options.proto` describes it.
pub struct MessageOption {
    pub resource: String,
    pub flatten: Option<String>,
}

/// Returns a string of an option. It is empty if it is absent.
fn text(option: &DynamicMessage, field: &str) -> String {
    let value = option.get_field_by_name(field);
    let value = value.as_deref().and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}
