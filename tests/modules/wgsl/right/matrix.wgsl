// Rows of x times rows of the weight.
struct Block {
    depth: u32, outputs: u32, row: u32, words: u32,
    in_scale: f32, in_zp: i32, inv_out_scale: f32, out_zp: i32, biased: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<uniform> block: Block;

fn signed_byte(word: u32, at: u32) -> i32 {
    return extractBits(bitcast<i32>(word), 8u * (at % 4u), 8u);
}

fn four(at: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(
        signed_byte(x[at.x / 4u], at.x), signed_byte(x[at.y / 4u], at.y),
        signed_byte(x[at.z / 4u], at.z), signed_byte(x[at.w / 4u], at.w),
    );
}

fn taps(at: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(
        signed_byte(weight[at.x / 4u], at.x), signed_byte(weight[at.y / 4u], at.y),
        signed_byte(weight[at.z / 4u], at.z), signed_byte(weight[at.w / 4u], at.w),
    );
}

@compute @workgroup_size(32)
fn multiply(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    let at = vec4<u32>(4u * word) + vec4<u32>(0u, 1u, 2u, 3u);
    let line = at / block.outputs;
    let output = at % block.outputs;
    var sum = vec4<i32>(0);
    // one loop for all four: a driver may end an invocation that loops too often
    for (var k = 0u; k < block.depth; k++) {
        sum += (four(line * block.depth + k) - vec4<i32>(block.in_zp)) * taps(output * block.row + k);
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        var real = (f32(sum[lane]) * block.in_scale) * scales[output[lane]];
        if (block.biased != 0u) {
            real += bias[output[lane]];
        }
        let q = clamp(i32(round(real * block.inv_out_scale)) + block.out_zp, -128, 127);
        packed |= (u32(q) & 0xffu) << (8u * lane);
    }
    y[word] = packed;
}
