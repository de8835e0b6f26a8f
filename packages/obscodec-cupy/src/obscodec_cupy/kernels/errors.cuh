#pragma once
#include "basics.cuh"
