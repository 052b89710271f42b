// A window of one tap: a sum over channels at each place.
struct Block {
    in_channels: u32, channels: u32, places: u32, row: u32, words: u32,
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

@compute @workgroup_size(32)
fn pointwise(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        let at = 4u * word + lane;
        let place = at % block.places;
        let channel = (at / block.places) % block.channels;
        let image = at / (block.places * block.channels);
        var sum = 0;
        for (var c = 0u; c < block.in_channels; c++) {
            let place_in_x = (image * block.in_channels + c) * block.places + place;
            let tap = channel * block.row + c;
            sum += (signed_byte(x[place_in_x / 4u], place_in_x) - block.in_zp) * signed_byte(weight[tap / 4u], tap);
        }
        var real = (f32(sum) * block.in_scale) * scales[channel];
        if (block.biased != 0u) {
            real += bias[channel];
        }
        let q = clamp(i32(round(real * block.inv_out_scale)) + block.out_zp, -128, 127);
        packed |= (u32(q) & 0xffu) << (8u * lane);
    }
    y[word] = packed;
}
