//! The schema of a message: the descriptors of its type and of all types that it consists of, and of nothing else.
//!
//! A recording contains the schemas of its channels in this form, so that any reader of protobuf can decode them.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

/// Descriptors of all messages of the wire and of recordings.
const ALL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemas.bin"));

/// The schema of the message of this name, such as `hyloc.v1.Fix`: an encoded `FileDescriptorSet` whose files come after
/// those that they import. None if there is no such message.
pub fn schema(name: &str) -> Option<Vec<u8>> {
    let mut all = FileDescriptorSet::decode(ALL).expect("descriptors that were encoded when this was built");
    let mut needed = BTreeSet::new();
    let mut open = vec![format!(".{name}")];
    while let Some(next) = open.pop() {
        let used = types_used_by(&all, &next)?;
        if needed.insert(next) {
            open.extend(used);
        }
    }
    for file in &mut all.file {
        let prefix = prefix(file);
        file.service.clear();
        file.message_type.retain(|message| needed.contains(&format!("{prefix}{}", message.name())));
        file.enum_type.retain(|names| needed.contains(&format!("{prefix}{}", names.name())));
    }
    all.file.retain(|file| !file.message_type.is_empty() || !file.enum_type.is_empty());
    let kept: BTreeSet<String> = all.file.iter().map(|file| file.name().to_owned()).collect();
    all.file.iter_mut().for_each(|file| file.dependency.retain(|name| kept.contains(name)));
    Some(all.encode_to_vec())
}

/// What the full names of the types of a file begin with.
fn prefix(file: &FileDescriptorProto) -> String {
    format!(".{}.", file.package())
}

/// The types outside of a type that its fields have; none if there is no type of this full name.
fn types_used_by(all: &FileDescriptorSet, name: &str) -> Option<Vec<String>> {
    let is = |file: &FileDescriptorProto, own: &str| name == format!("{}{own}", prefix(file));
    if all.file.iter().any(|file| file.enum_type.iter().any(|names| is(file, names.name()))) {
        return Some(Vec::new());
    }
    let messages = all.file.iter().flat_map(|file| file.message_type.iter().map(move |m| (file, m)));
    let (_, message) = messages.into_iter().find(|(file, message)| is(file, message.name()))?;
    let inside = format!("{name}.");
    let used = fields(message).map(|field| field.type_name().to_owned());
    Some(used.filter(|used| !used.is_empty() && !used.starts_with(&inside)).collect())
}

/// The fields of a message and of the messages inside it.
fn fields(message: &DescriptorProto) -> Box<dyn Iterator<Item = &prost_types::FieldDescriptorProto> + '_> {
    Box::new(message.field.iter().chain(message.nested_type.iter().flat_map(fields)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(name: &str) -> Vec<String> {
        let set = FileDescriptorSet::decode(schema(name).unwrap().as_slice()).unwrap();
        let names = |file: &FileDescriptorProto| {
            let messages = file.message_type.iter().map(|message| message.name().to_owned());
            messages.chain(file.enum_type.iter().map(|names| names.name().to_owned())).collect::<Vec<_>>()
        };
        set.file.iter().flat_map(names).collect()
    }

    #[test]
    fn a_schema_has_what_its_message_consists_of() {
        assert_eq!(types("hyloc.v1.RecordedFrame"), ["RecordedFrame", "RecordedClocks"]);
        assert_eq!(
            types("hyloc.v1.FrameReport"),
            ["FrameReport", "Block", "NodeTimes", "Precision", "Payload"]
        );
        let log = FileDescriptorSet::decode(schema("foxglove.Log").unwrap().as_slice()).unwrap();
        let files: Vec<&str> = log.file.iter().map(|file| file.name()).collect();
        assert_eq!(files, ["google/protobuf/timestamp.proto", "foxglove/log.proto"], "imports come first");
        assert_eq!(types("foxglove.Log"), ["Timestamp", "Log"]);
        assert_eq!((schema("hyloc.v1.Nothing"), schema("")), (None, None));
        let longest = schema("foxglove.SceneUpdate").unwrap().len();
        assert!(longest < 4096, "{longest} bytes");
    }
}
