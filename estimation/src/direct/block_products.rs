//! Products of a block and of its derivative with the unit atoms of many points: [`LANES`] points at a time, in single
//! precision.
//!
//! `z = a^H R b / (sqrt M ||b||)` for the responses a and b of the sensors and of the reflecting IRS to a point, and the same of R'.

use model::CMatrix;
use num_complex::{Complex32, Complex64};

use crate::delay::BlockExpansion;
use crate::linalg::register::{Complexes, Register};
use crate::linalg::{ComplexLanes, Instructions, Kernel, LANES, dispatch};

/// The products of one path, point after point.
pub(super) struct BlockProducts(Vec<[ComplexLanes<f32>; 2]>);

impl BlockProducts {
    /// `arrivals` and `lights` hold a and `b^* / (sqrt M ||b||)`, see [`ComplexLanes::of_vectors`].
    pub fn new(
        expansion: &BlockExpansion,
        arrivals: &[ComplexLanes<f32>],
        lights: &[ComplexLanes<f32>],
    ) -> Self {
        let (sensors, streams) = expansion.block.shape();
        let single = |matrix: &CMatrix| -> Vec<Complex32> {
            matrix.iter().map(|value| Complex32::new(value.re as f32, value.im as f32)).collect()
        };
        let parts = [single(&expansion.block), single(&expansion.block_derivative)];
        let groups = arrivals.chunks_exact(sensors).zip(lights.chunks_exact(streams));
        let instructions = Instructions::detect();
        let products = |(arrival, light)| dispatch(instructions, Products { parts: &parts, arrival, light });
        Self(groups.map(products).collect())
    }

    /// The products at a point, of the block and of its derivative.
    pub fn at(&self, point: usize) -> [Complex64; 2] {
        let lane = point % LANES;
        self.0[point / LANES].map(|part| Complex64::new(part.re.0[lane].into(), part.im.0[lane].into()))
    }
}

/// The products at the points of one group of lanes.
struct Products<'a> {
    parts: &'a [Vec<Complex32>; 2],
    arrival: &'a [ComplexLanes<f32>],
    light: &'a [ComplexLanes<f32>],
}

impl Kernel<f32> for Products<'_> {
    type Output = [ComplexLanes<f32>; 2];

    #[inline(always)]
    fn run<R: Register<Scalar = f32>>(self) -> [ComplexLanes<f32>; 2] {
        let [block, derivative] = self.parts;
        let sensors = self.arrival.len();
        let columns = block.chunks_exact(sensors).zip(derivative.chunks_exact(sensors));
        let (mut sum, mut turned) = (Complexes::<R>::zero(), Complexes::<R>::zero());
        for ((column, by_delay), light) in columns.zip(self.light) {
            let light = Complexes::load(light);
            sum = sum.plus_conjugate(light, Complexes::inner(self.arrival, column));
            turned = turned.plus_conjugate(light, Complexes::inner(self.arrival, by_delay));
        }
        let mut products = [ComplexLanes::ZERO; 2];
        sum.store(&mut products[0]);
        turned.store(&mut products[1]);
        products
    }
}
