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
use super::rows::SweepRow;

/// The values of a column.
enum ColumnValues {
    Numbers(Vec<f64>),
    Counts(Vec<i64>),
    Texts(Vec<ByteArray>),
}

/// The file as bytes; `path` is for messages only.
pub fn to_parquet(path: &Path, plan: &SweepPlan, rows: &[SweepRow]) -> anyhow::Result<Vec<u8>> {
    write(&columns(plan, rows)).with_context(|| format!("cannot make {}", path.display()))
}

fn columns(plan: &SweepPlan, rows: &[SweepRow]) -> Vec<(String, ColumnValues)> {
    let numbers = |value: fn(&SweepRow) -> f64| ColumnValues::Numbers(rows.iter().map(value).collect());
    let mut columns =
        vec![("point".to_owned(), ColumnValues::Counts(rows.iter().map(|row| row.point as i64).collect()))];
    for (axis, key) in plan.axes.iter().enumerate() {
        let values: Vec<&str> = rows.iter().map(|row| plan.points[row.point].values[axis].as_str()).collect();
        let parsed: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
        let texts = || values.iter().map(|value| ByteArray::from(*value)).collect();
        columns
            .push((key.clone(), parsed.map_or_else(|| ColumnValues::Texts(texts()), ColumnValues::Numbers)));
    }
    let metrics = rows.iter().map(|row| ByteArray::from(row.metric)).collect();
    columns.extend([
        ("metric".into(), ColumnValues::Texts(metrics)),
        ("value".into(), numbers(|row| row.estimate.value)),
        ("low".into(), numbers(|row| row.estimate.low)),
        ("high".into(), numbers(|row| row.estimate.high)),
        ("trials".into(), ColumnValues::Counts(rows.iter().map(|row| row.trials as i64).collect())),
    ]);
    columns
}

fn write(columns: &[(String, ColumnValues)]) -> parquet::errors::Result<Vec<u8>> {
    let fields = columns.iter().map(|(name, values)| {
        let (kind, converted) = match values {
            ColumnValues::Numbers(_) => (PhysicalType::DOUBLE, ConvertedType::NONE),
            ColumnValues::Counts(_) => (PhysicalType::INT64, ConvertedType::NONE),
            ColumnValues::Texts(_) => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
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
            ColumnValues::Texts(values) => column.typed::<ByteArrayType>().write_batch(values, None, None)?,
        };
        column.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}
