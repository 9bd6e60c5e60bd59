//! Reading the contract with its options.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor, Value,
};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::comments;
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
        let option = self.option("assay.v1.message", &message.options())?;
        Some(MessageOption {
            resource: text(&option, "resource"),
            flatten: Some(text(&option, "flatten")).filter(|name| !name.is_empty()),
            schema: text(&option, "schema"),
            by_hand: flag(&option, "by_hand"),
        })
    }
}

impl Contract {
    /// Returns the services of the contract, by the place of their section, then by file.
    pub fn services(&self) -> Vec<ServiceDescriptor> {
        let services = self.0.services();
        let services: Vec<_> = services
            .filter(|service| service.package_name() == PACKAGE)
            .collect();
        let position = |service: &ServiceDescriptor| {
            let option = self.option("assay.v1.service", &service.options());
            option.map_or(0, |option| number(&option, "position"))
        };
        let tag_position = |service: &ServiceDescriptor| {
            let tag = self.service_tag(service);
            let same = services
                .iter()
                .filter(|other| self.service_tag(other) == tag);
            same.map(position).max()
        };
        let order: Vec<_> = services.iter().map(tag_position).collect();
        let mut services: Vec<_> = order.into_iter().zip(services.iter().cloned()).collect();
        services.sort_by_cached_key(|(position, service)| {
            (*position, service.parent_file().name().to_owned())
        });
        services.into_iter().map(|(_, service)| service).collect()
    }

    /// Returns the tag of a service. Empty if it has none.
    pub fn service_tag(&self, service: &ServiceDescriptor) -> String {
        let option = self.option("assay.v1.service", &service.options());
        option
            .map(|option| text(&option, "tag"))
            .unwrap_or_default()
    }

    /// Returns the resource of a message. `None` if it has none.
    pub fn resource(&self, message: &MessageDescriptor) -> Option<String> {
        let option = self.message_option(message)?;
        Some(option.resource).filter(|resource| !resource.is_empty())
    }

    /// Returns the tags in the order of their sections, with their descriptions.
    pub fn tags(&self) -> Vec<(String, String)> {
        let mut tags = Vec::new();
        for service in self.services() {
            if let Some(option) = self.option("assay.v1.service", &service.options()) {
                let position = number(&option, "position");
                if position > 0 {
                    let paragraphs = comments::paragraphs(&service.parent_file(), service.path());
                    let description = comments::for_rest(paragraphs).concat().join(" ");
                    tags.push((position, text(&option, "tag"), description));
                }
            }
        }
        tags.sort();
        tags.into_iter()
            .map(|(_, tag, description)| (tag, description))
            .collect()
    }

    /// Returns the declaration of an rpc.
    pub fn method_option(&self, rpc: &MethodDescriptor) -> Option<DynamicMessage> {
        self.option("assay.v1.operation", &rpc.options())
    }

    /// Returns the option of a field.
    pub fn field_option(&self, field: &FieldDescriptor) -> Option<DynamicMessage> {
        self.option("assay.v1.field", &field.options())
    }

    /// Returns the value of an option. `None` if it is absent.
    fn option(&self, name: &str, options: &DynamicMessage) -> Option<DynamicMessage> {
        let extension = self.0.get_extension_by_name(name)?;
        if !options.has_extension(&extension) {
            return None;
        }
        options.get_extension(&extension).as_message().cloned()
    }
}

/// The option `message`, as `options.proto` describes it.
pub struct MessageOption {
    pub resource: String,
    pub flatten: Option<String>,
    pub schema: String,
    pub by_hand: bool,
}

/// Returns a number of an option. It is 0 if it is absent.
pub fn number(option: &DynamicMessage, field: &str) -> i32 {
    let value = option.get_field_by_name(field);
    value.as_deref().and_then(Value::as_i32).unwrap_or(0)
}

/// Returns `true` if an option is set.
pub fn flag(option: &DynamicMessage, field: &str) -> bool {
    let value = option.get_field_by_name(field);
    value.as_deref().and_then(Value::as_bool).unwrap_or(false)
}

/// Returns a string of an option. It is empty if it is absent.
pub fn text(option: &DynamicMessage, field: &str) -> String {
    let value = option.get_field_by_name(field);
    let value = value.as_deref().and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}
