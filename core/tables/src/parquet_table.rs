//! Tables in Apache Parquet: a flat schema.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::panic::{self, AssertUnwindSafe};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use assay_eval::suite::{BadSuite, BadSuiteCode, DataTable, SuiteFiles};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use time::{Date, OffsetDateTime};

use super::cell::{Cell, write_string};
use super::converter::Converter;

/// The most bytes of a row group, not compressed.
const ROW_GROUP_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 1_024;

/// The days from the start of the Julian calendar to 1970-01-01.
const JULIAN_EPOCH: i32 = 2_440_588;

const NOT_PARQUET: &str = "is not valid Parquet; write it again, without encryption and compressed with snappy, zstd or not at all";

/// Reads the table.
pub(crate) fn read(data: &DataTable, files: &dyn SuiteFiles, converter: &mut Converter<'_, '_>) {
    let read = catch_panics(&data.file, || match files.file(&data.file) {
        Ok(Some(file)) => read_from(file, data, converter),
        Ok(None) => bytes(files, &data.file)
            .map_err(|error| BadSuite::unreadable(&data.file, 0, &error))
            .and_then(|bytes| read_from(bytes, data, converter)),
        Err(error) => Err(BadSuite::unreadable(&data.file, 0, &error)),
    });
    if let Err(error) = read {
        converter.reject(error);
    }
}

/// Returns the names of the columns.
pub(crate) fn columns(file: &str, files: &dyn SuiteFiles) -> Result<Vec<String>, BadSuite> {
    catch_panics(file, || {
        let bytes = bytes(files, file).map_err(|error| BadSuite::unreadable(file, 0, &error))?;
        Ok(names(&builder(bytes, file)?))
    })
}

/// Calls `read`. The library panics if lengths or bit widths in the file are wrong, which is an error of the file.
fn catch_panics<T>(file: &str, read: impl FnOnce() -> Result<T, BadSuite>) -> Result<T, BadSuite> {
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    read.unwrap_or_else(|_| Err(not_parquet(file)))
}

/// Returns the error of a file that the library rejects. Its messages may quote the file.
fn not_parquet(file: &str) -> BadSuite {
    BadSuite::new(file, 0, NOT_PARQUET).with_code(BadSuiteCode::Syntax)
}

/// Opens a file. The types are those of Parquet alone: the schema of Arrow that some programs store is not trusted.
fn builder<R: ChunkReader + 'static>(
    reader: R,
    file: &str,
) -> Result<ParquetRecordBatchReaderBuilder<R>, BadSuite> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ParquetRecordBatchReaderBuilder::try_new_with_options(reader, options)
        .map_err(|_| not_parquet(file))
}

fn names<R: ChunkReader>(builder: &ParquetRecordBatchReaderBuilder<R>) -> Vec<String> {
    let fields = builder.schema().fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

fn bytes(files: &dyn SuiteFiles, name: &str) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    files.open(name)?.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn read_from<R: ChunkReader + 'static>(
    file: R,
    data: &DataTable,
    converter: &mut Converter<'_, '_>,
) -> Result<(), BadSuite> {
    let bad =
        |code: BadSuiteCode, message: &str| BadSuite::new(&data.file, 0, message).with_code(code);
    let not_parquet = || not_parquet(&data.file);
    let builder = builder(file, &data.file)?;
    check_row_groups(builder.metadata()).map_err(|message| bad(BadSuiteCode::TooLong, &message))?;
    let fields = builder.schema().fields().clone();
    let names = names(&builder);
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        let message = "two columns have one name; rename one";
        return Err(bad(BadSuiteCode::Duplicate, message));
    }
    if converter.set_columns(names, 0).is_break() {
        return Ok(());
    }
    let used = converter.used_columns();
    let mut is_valid = true;
    for at in used.iter().copied() {
        if !is_supported(fields[at].data_type()) {
            is_valid = false;
            let reason = "must be a boolean, an integer, a float, a string, a date, a timestamp, or a list of these; convert the column, \
                          or name it in [data] drop";
            converter.reject_cell(0, at, BadSuiteCode::Type, reason);
        }
    }
    if !is_valid {
        return Ok(());
    }
    let projection = ProjectionMask::roots(builder.parquet_schema(), used.iter().copied());
    let reader = builder
        .with_projection(projection)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|_| not_parquet())?;
    let mut row = 0;
    for batch in reader {
        let batch = batch.map_err(|_| not_parquet())?;
        for at in 0..batch.num_rows() {
            row += 1;
            add_row(&batch, at, row, &used, fields.len(), converter);
        }
    }
    Ok(())
}

fn check_row_groups(metadata: &ParquetMetaData) -> Result<(), String> {
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let columns = group.columns().iter();
        let bytes = columns.fold(0_i64, |sum, column| {
            sum.saturating_add(column.uncompressed_size().max(0))
        });
        let bytes = bytes.max(group.total_byte_size());
        if bytes > ROW_GROUP_BYTES_MAX {
            return Err(format!(
                "row group {at} has {bytes} bytes; must have at most {ROW_GROUP_BYTES_MAX}, so write smaller row groups"
            ));
        }
    }
    Ok(())
}

fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            is_scalar(field.data_type())
        }
        data_type => is_scalar(data_type),
    }
}

fn is_scalar(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Null
            | DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float16
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Date32
            | DataType::Date64
            | DataType::Timestamp(_, _)
    )
}

fn add_row(
    batch: &RecordBatch,
    at: usize,
    row: usize,
    used: &[usize],
    n_columns: usize,
    converter: &mut Converter<'_, '_>,
) {
    let mut cells = vec![Cell::Null; n_columns];
    for (array, place) in batch.columns().iter().zip(used.iter().copied()) {
        match cell(array.as_ref(), at) {
            Ok(cell) => cells[place] = cell,
            Err(reason) => {
                return converter.reject_cell(row, place, BadSuiteCode::Value, reason);
            }
        }
    }
    converter.add_row(row, &cells);
}

/// Returns the value of an array at a place.
fn cell(array: &dyn Array, at: usize) -> Result<Cell<'_>, &'static str> {
    // Arrays of nulls have no mask.
    if array.is_null(at) || *array.data_type() == DataType::Null {
        return Ok(Cell::Null);
    }
    macro_rules! integer {
        ($type:ty) => {
            Ok(Cell::Integer(
                array.as_primitive::<$type>().value(at).to_string().into(),
            ))
        };
    }
    macro_rules! timestamp {
        ($type:ty, $nanoseconds:literal, $zone:expr) => {
            timestamp(
                array.as_primitive::<$type>().value(at),
                $nanoseconds,
                $zone.is_some(),
            )
        };
    }
    match array.data_type() {
        DataType::Boolean => Ok(Cell::Bool(array.as_boolean().value(at))),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Float16 => {
            let value = array.as_primitive::<Float16Type>().value(at);
            shortest(&value.to_string())
        }
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(at);
            shortest(&value.to_string())
        }
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(at)),
        DataType::Utf8 => Ok(Cell::Text(array.as_string::<i32>().value(at).into())),
        DataType::LargeUtf8 => Ok(Cell::Text(array.as_string::<i64>().value(at).into())),
        DataType::Utf8View => Ok(Cell::Text(array.as_string_view().value(at).into())),
        DataType::Date32 => date(array.as_primitive::<Date32Type>().value(at)),
        DataType::Date64 => {
            let days = array.as_primitive::<Date64Type>().value(at) / (24 * 3_600 * 1_000);
            date(i32::try_from(days).map_err(|_| OUT_OF_RANGE)?)
        }
        DataType::Timestamp(TimeUnit::Second, zone) => {
            timestamp!(TimestampSecondType, 1_000_000_000, zone)
        }
        DataType::Timestamp(TimeUnit::Millisecond, zone) => {
            timestamp!(TimestampMillisecondType, 1_000_000, zone)
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            timestamp!(TimestampMicrosecondType, 1_000, zone)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            timestamp!(TimestampNanosecondType, 1, zone)
        }
        DataType::List(_) => list(array.as_list::<i32>().value(at).as_ref()),
        DataType::LargeList(_) => list(array.as_list::<i64>().value(at).as_ref()),
        DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list().value(at).as_ref()),
        _ => Err("has a type that is not supported"),
    }
}

fn list(values: &dyn Array) -> Result<Cell<'static>, &'static str> {
    let mut json = String::from("[");
    for at in 0..values.len() {
        if at > 0 {
            json.push(',');
        }
        match cell(values, at)? {
            Cell::Text(text) => write_string(&text, &mut json),
            cell => cell.write_json(&mut json),
        }
    }
    json.push(']');
    Ok(Cell::Json(json.into()))
}

const NOT_FINITE: &str = "must not be NaN or infinite; write null for no value";
const OUT_OF_RANGE: &str = "must be in the years 0 to 9999";

fn float(number: f64) -> Result<Cell<'static>, &'static str> {
    if number.is_finite() {
        Ok(Cell::float(number))
    } else {
        Err(NOT_FINITE)
    }
}

/// Returns the number with the shortest text of a shorter float: 0.1 and not 0.10000000149, as other
/// formats write it.
fn shortest(text: &str) -> Result<Cell<'static>, &'static str> {
    float(text.parse().map_err(|_| NOT_FINITE)?)
}

fn date(days: i32) -> Result<Cell<'static>, &'static str> {
    let date = days
        .checked_add(JULIAN_EPOCH)
        .and_then(|day| Date::from_julian_day(day).ok());
    let date = date.filter(|date| date.year() >= 0).ok_or(OUT_OF_RANGE)?;
    Ok(Cell::Text(iso_date(date).into()))
}

fn iso_date(date: Date) -> String {
    let month = u8::from(date.month());
    format!("{:04}-{month:02}-{:02}", date.year(), date.day())
}

/// Returns the ISO 8601 text of a timestamp in this many nanoseconds since 1970. Without a time zone it
/// has none; with one it is in UTC.
fn timestamp(count: i64, nanoseconds: i128, has_zone: bool) -> Result<Cell<'static>, &'static str> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(count) * nanoseconds);
    let at = at.ok().filter(|at| at.year() >= 0).ok_or(OUT_OF_RANGE)?;
    let (hour, minute, second) = at.to_hms();
    let mut text = format!("{}T{hour:02}:{minute:02}:{second:02}", iso_date(at.date()));
    if at.nanosecond() > 0 {
        let fraction = format!("{:09}", at.nanosecond());
        let fraction = fraction.trim_end_matches('0');
        // As many digits as milliseconds, microseconds or nanoseconds have.
        let digits = fraction.len().next_multiple_of(3);
        // Writing to a string cannot fail.
        _ = write!(text, ".{fraction:0<digits$}");
    }
    if has_zone {
        text.push('Z');
    }
    Ok(Cell::Text(text.into()))
}
