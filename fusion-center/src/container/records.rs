//! Records of an MCAP file.

use std::collections::BTreeMap;

use mcap::records::op;

use super::{ContainerEvent, Entry, u32_at, u64_at};

/// Channel, sequence number and two times.
const MESSAGE_HEADER: usize = 2 + 4 + 8 + 8;

/// Parses a record of `length` bytes of which `body` has been read. The outer option is none if it is inconsistent, the
/// inner one if it is of no interest.
pub(super) fn parse_record(opcode: u8, length: u64, body: &[u8]) -> Option<Option<ContainerEvent>> {
    let mut fields = Fields(body);
    match opcode {
        op::HEADER => {
            fields.text()?;
            fields.text()?;
            fields.0.is_empty().then_some(None)
        }
        op::METADATA if length > body.len() as u64 => Some(None),
        op::METADATA => {
            let name = fields.text()?;
            let map = fields.map()?;
            (fields.0.is_empty()).then(|| (name == "hyloc").then_some(ContainerEvent::Metadata(map)))
        }
        op::MESSAGE_INDEX => (body.len() == 6 && u64::from(u32_at(body, 2)) == length - 6).then_some(None),
        op::CHANNEL => {
            let (id, _schema) = (fields.u16()?, fields.u16()?);
            let (topic, _encoding) = (fields.text()?, fields.text()?);
            fields.map()?;
            fields.0.is_empty().then(|| Some(ContainerEvent::Channel { id, topic: topic.into() }))
        }
        op::MESSAGE => {
            let data = body.get(MESSAGE_HEADER..)?.to_vec();
            let (channel, sequence, time_ns) = (fields.u16()?, fields.u32()?, fields.u64()?);
            Some(Some(ContainerEvent::Entry(Entry { channel, sequence, time_ns, data })))
        }
        op::SCHEMA | op::ATTACHMENT => Some(None),
        _ => None,
    }
}

/// The fields of a record that have not been read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.take(4)?, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64_at(self.take(8)?, 0))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.take(length as usize)?).ok()
    }

    fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let length = self.u32()?;
        let mut fields = Fields(self.take(length as usize)?);
        let mut map = BTreeMap::new();
        while !fields.0.is_empty() {
            map.insert(fields.text()?.to_owned(), fields.text()?.to_owned());
        }
        Some(map)
    }
}
