//! The rows of a sweep as a Parquet file: the columns of the CSV, numbers as numbers.
//!
//! Without compression, time stamps or versions of anything, so that the same rows give the same bytes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::plan::SweepPlan;
use super::rows::{ColumnValues, SweepRow, columns};

/// The file as bytes; `path` is for messages only.
pub fn to_parquet(path: &Path, plan: &SweepPlan, rows: &[SweepRow]) -> anyhow::Result<Vec<u8>> {
    let columns: Vec<_> =
        columns(plan, rows).into_iter().map(|(name, values)| (name, typed(values))).collect();
    write(&columns).with_context(|| format!("cannot make {}", path.display()))
}

/// An axis of numbers has numbers; a point that is not on it has none there.
fn typed(values: ColumnValues) -> ColumnValues {
    let ColumnValues::Axis(values) = values else { return values };
    let number = |value: &&str| if value.is_empty() { Some(f64::NAN) } else { value.parse::<f64>().ok() };
    let numbers = values.iter().map(number).collect::<Option<_>>();
    numbers.map_or(ColumnValues::Texts(values), ColumnValues::Numbers)
}

fn write(columns: &[(&str, ColumnValues)]) -> parquet::errors::Result<Vec<u8>> {
    let fields = columns.iter().map(|(name, values)| {
        let (kind, converted) = match values {
            ColumnValues::Numbers(_) => (PhysicalType::DOUBLE, ConvertedType::NONE),
            ColumnValues::Counts(_) => (PhysicalType::INT64, ConvertedType::NONE),
            ColumnValues::Texts(_) | ColumnValues::Axis(_) => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let field = Type::primitive_type_builder(name, kind).with_repetition(Repetition::REQUIRED);
        field.with_converted_type(converted).build().map(Arc::new)
    });
    let fields = fields.collect::<parquet::errors::Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("sweep").with_fields(fields).build()?);
    let properties = WriterProperties::builder().set_created_by("hyloc".into()).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (_, values) in columns {
        let Some(mut column) = group.next_column()? else { break };
        match values {
            ColumnValues::Numbers(values) => column.typed::<DoubleType>().write_batch(values, None, None)?,
            ColumnValues::Counts(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
            ColumnValues::Texts(values) | ColumnValues::Axis(values) => {
                let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
                column.typed::<ByteArrayType>().write_batch(&values, None, None)?
            }
        };
        column.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}
